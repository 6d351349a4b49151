"""Speed, memory and accuracy of minBERT and its peers on the same inputs."""

"""What the problem types share: the interface, and the bases of related types."""

"""Methods against overfitting: R-Drop, SMART and NEFTune."""

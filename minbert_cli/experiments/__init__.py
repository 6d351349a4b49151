"""Many runs: planned from one file, run one after the other, tabulated and compared."""

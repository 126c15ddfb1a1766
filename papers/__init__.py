"""Commands that only reproducing the papers needs; run from a checkout."""

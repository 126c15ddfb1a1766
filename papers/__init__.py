"""What only reproducing the papers needs."""

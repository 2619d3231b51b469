"""Training under attack on one machine: experiments, engines, the training loop and sweeps."""

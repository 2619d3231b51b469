"""Training under attack on one machine: experiments, engines, the loop, recording, sweeps."""

"""FedRo with Flower, as an app: `flwr run examples/flower`."""

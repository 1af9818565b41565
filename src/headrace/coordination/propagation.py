"""The way of the controller's requests to brokers."""

from headrace.coordination.channels import Send

__all__ = ["Send"]

"""The name of our device."""

NAME = "card"
"""What `device.type` says inside a recorded program."""

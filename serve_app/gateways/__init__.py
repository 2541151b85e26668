"""What the gateways of one application tell one another, and what each makes of it."""

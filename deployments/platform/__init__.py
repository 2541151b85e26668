"""What Ray, Serve and the machine offer, wrapped in one place."""

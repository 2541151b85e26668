"""What is behind ``make serve``. It is in the package, not among the scripts of a checkout, because
``promptly serve`` runs it where only the wheel is installed."""

"""What a gateway measures of finished requests, and what it says when something is wrong."""

"""What a request carries beside its body: keys, headers, deadline, priority."""

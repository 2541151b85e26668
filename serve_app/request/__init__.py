"""What a request says of itself outside its body: keys, headers, deadline, priority."""

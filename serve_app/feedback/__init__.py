"""What people say of answers: which request it is about, who may read it, and what follows from it."""

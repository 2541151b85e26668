"""What Promptly tells vLLM, and what is not public there."""

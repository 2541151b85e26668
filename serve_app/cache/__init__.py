"""The rules of the response cache: who may share an answer, what a request may ask for, what is a hit."""

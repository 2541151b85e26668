"""A report as text: for a terminal, as Markdown, JSON, JUnit's XML, and a page with plots."""

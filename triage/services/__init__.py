"""What Pitstop does with incidents: one module a subject, called by pages, API and tasks."""

"""Routes for whoever runs the server: pause and resume, caches, profile, weights. They need the admin scope."""

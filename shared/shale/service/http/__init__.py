"""The HTTP server of daemons: connections, bodies, authentication, problem documents."""

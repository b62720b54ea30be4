"""What the tests stand on: a private MariaDB, a real server process, callers of its API and worker sockets."""

"""What runs around each job."""

"""Brings the schedules of another scheduler over, proves each translation, and takes entries over or gives them back."""

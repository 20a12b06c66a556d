"""What each section of the report says: functions from a run folder to the values that its template prints."""

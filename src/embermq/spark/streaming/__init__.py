"""Stream reads: by place in the log or by queue, offsets as JSON, limits, progress as a consumer group's."""

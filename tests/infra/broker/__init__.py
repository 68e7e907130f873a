"""The embedded broker from the inside: recovery, group clockwork, trouble with disks, segments, the process."""

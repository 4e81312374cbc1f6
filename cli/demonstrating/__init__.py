"""What `baton demo` is made of: its log, the truth to compare with, the counts of every stage, the print."""

"""What `bench/grid.py` consists of: plan, clients, processes, results and page."""

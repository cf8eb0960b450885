"""What any numerical program needs: threads, processes, devices, clocks, whole files. No word of recommendation."""

"""What a broker tells of itself: counted in place while it works, put together only when somebody asks."""

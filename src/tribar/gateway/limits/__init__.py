"""Who may use how much: requests, tokens, concurrent requests and a day's worth, per key, tenant and model."""

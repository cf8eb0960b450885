"""The live service: `divmf.Live`, its store, the HTTP API, the studio page, and the replay of logs."""

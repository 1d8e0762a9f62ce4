//! One client and its upstream link: relay, rewritten commands, cursors, handshake.

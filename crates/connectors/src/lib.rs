//! Sources and sinks: files that can be read again and written in two phases.

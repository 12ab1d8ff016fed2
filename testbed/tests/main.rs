//! The testbed does what it says: its servers keep, lose, refuse and promote; its networks fail as told.

mod servers;

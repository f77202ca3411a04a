//! librarian

//! A schema or a data dictionary as people write it: `group/project/path/name@version`.
//!
//! The path may have several parts; the others have one. It is sealed with the content and says where the
//! file is found, in whatever repository both sides use; nothing is fetched.

use std::fmt;

use author::SchemaArtifact;

/// The longest reference, in bytes: two of them leave the metadata room for a name.
const REFERENCE_BYTES_MAX: usize = 4096;

/// Reads a reference.
///
/// # Errors
/// A sentence that says what is missing.
pub(crate) fn parse(text: &str) -> Result<SchemaArtifact, String> {
    if text.len() > REFERENCE_BYTES_MAX {
        return Err(format!("over {REFERENCE_BYTES_MAX} bytes"));
    }
    let wrong = || format!("{text:?} is not group/project/path/name@version");
    let (place, version) = text.rsplit_once('@').ok_or_else(wrong)?;
    let (place, name) = place.rsplit_once('/').ok_or_else(wrong)?;
    let (group, place) = place.split_once('/').ok_or_else(wrong)?;
    let (project, path) = place.split_once('/').ok_or_else(wrong)?;
    let empty = [group, project, name, version].iter().any(|part| part.is_empty())
        || path.split('/').any(str::is_empty);
    if empty || version.contains('/') {
        return Err(wrong());
    }
    let [group, project, path, name, version] =
        [group, project, path, name, version].map(ToOwned::to_owned);
    Ok(SchemaArtifact { group, project, path, name, version })
}

/// A reference in the form that [`parse`] reads.
pub(crate) struct Text<'a>(pub(crate) &'a SchemaArtifact);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SchemaArtifact { group, project, path, name, version } = self.0;
        write!(f, "{group}/{project}/{path}/{name}@{version}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_read_and_written_alike() {
        for text in ["g/p/a/n@1", "g/p/a/b/c/n@1.2.0", "g/p/a/n@x@2"] {
            assert_eq!(Text(&parse(text).expect("it is one")).to_string(), text);
        }
        let read = parse("acme/ehr/schemas/v2/patient@1.0").expect("it is one");
        assert_eq!(
            [read.group, read.project, read.path, read.name, read.version],
            ["acme", "ehr", "schemas/v2", "patient", "1.0"]
        );
    }

    #[test]
    fn what_lacks_a_part_is_refused() {
        let long = format!("g/p/a/n@{}", "1".repeat(REFERENCE_BYTES_MAX));
        let bad =
            ["", "@", "n@1", "g/n@1", "g/p/n@1", "g/p/a/n", "g/p/a/n@", "g/p/a/@1", "/p/a/n@1"];
        for text in
            bad.into_iter().chain(["g//a/n@1", "g/p//n@1", "g/p/a//n@1", "g/p/a/n@1/2", &long])
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}

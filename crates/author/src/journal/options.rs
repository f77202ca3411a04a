//! A digest of all that a put's bytes depend on beside its source: where it differs nothing may be resumed.

use crypto::{NetworkId, Suite};
use document::SchemaArtifact;

use crate::types::PutOptions;

/// Bytes with the length before each field, so that no two inputs read the same.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn count(&mut self, count: usize) {
        self.0.extend_from_slice(&(count as u64).to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn artifact(&mut self, artifact: Option<&SchemaArtifact>) {
        self.count(usize::from(artifact.is_some()));
        let Some(artifact) = artifact else { return };
        let SchemaArtifact { group, project, path, name, version } = artifact;
        for text in [group, project, path, name, version] {
            self.bytes(text.as_bytes());
        }
    }
}

/// The digest; see `docs/formats/journal.md`.
pub(crate) fn digest(suite: Suite, network: &NetworkId, options: &PutOptions) -> [u8; 32] {
    let mut fields = Fields::default();
    fields.bytes(suite.name().as_bytes());
    fields.bytes(network.as_bytes());
    fields.bytes(document::compressor(suite).as_bytes());
    fields.bytes(options.name.as_deref().unwrap_or_default().as_bytes());
    fields.bytes(options.media_type.as_deref().unwrap_or_default().as_bytes());
    fields.count(options.readers.len());
    for reader in &options.readers {
        fields.bytes(reader.as_bytes());
    }
    fields.count(options.properties.len());
    for (name, value) in &options.properties {
        fields.bytes(name.as_bytes());
        fields.bytes(value);
    }
    fields.artifact(options.schema.as_ref());
    fields.artifact(options.data_dictionary.as_ref());
    // Another k cuts other chunks. With another n the pages are the same and live elsewhere, at another stripe's id.
    let profile = options.profile.map(|profile| profile.to_string());
    fields.bytes(profile.unwrap_or_default().as_bytes());
    // What was stored is paid as long as was asked then.
    let seconds = options.lease_seconds.map(u64::to_be_bytes);
    fields.bytes(seconds.as_ref().map_or(&[], |seconds| &seconds[..]));
    Suite::Holdfast1.hash(&fields.0)
}

//! The media type of a file by the end of its name.
//!
//! A short table of what people put most; the content is never looked at. What is not in it is
//! `application/octet-stream`. The type is sealed with the name: peers see neither.

/// The media type where nothing is known.
pub const UNKNOWN: &str = "application/octet-stream";

/// Extensions, lower case, with their media types (IANA's names).
const TABLE: &[(&str, &str)] = &[
    ("7z", "application/x-7z-compressed"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("bz2", "application/x-bzip2"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("epub", "application/epub+zip"),
    ("flac", "audio/flac"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("h5", "application/x-hdf5"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("jsonl", "application/x-ndjson"),
    ("md", "text/markdown"),
    ("mkv", "video/x-matroska"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("nc", "application/x-netcdf"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("ogg", "audio/ogg"),
    ("parquet", "application/vnd.apache.parquet"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("rs", "text/x-rust"),
    ("rtf", "application/rtf"),
    ("sh", "application/x-sh"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("txt", "text/plain"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// The media type that a file of this name most likely has.
///
/// ```
/// assert_eq!(author::media::by_name("letters/To Anna.PDF"), "application/pdf");
/// assert_eq!(author::media::by_name("Makefile"), "application/octet-stream");
/// ```
pub fn by_name(name: &str) -> &'static str {
    let last = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let Some((_, extension)) = last.rsplit_once('.') else { return UNKNOWN };
    let extension = extension.to_ascii_lowercase();
    let found = TABLE.binary_search_by_key(&extension.as_str(), |(known, _)| known);
    found.ok().and_then(|at| TABLE.get(at)).map_or(UNKNOWN, |(_, media_type)| media_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_ascends_so_that_it_can_be_searched() {
        assert!(TABLE.is_sorted_by(|(a, _), (b, _)| a < b));
        for (extension, media_type) in TABLE {
            assert_eq!(by_name(&format!("x.{extension}")), *media_type);
        }
    }

    #[test]
    fn only_the_end_of_the_last_name_counts() {
        for name in ["", ".", "a.", "pdf", "a.pdf/b", "dir.txt/Makefile", "a.tar.unknown", "ü.ß"]
        {
            assert_eq!(by_name(name), UNKNOWN, "{name:?}");
        }
        assert_eq!(by_name("a.tar.gz"), "application/gzip");
    }
}

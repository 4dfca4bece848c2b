//! What a URI says.

use strandline_snapshot::store::check_path;
use strandline_snapshot::{Error, ErrorKind, Result};

/// A kind of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    S3,
    Gcs,
    Azure,
    Hdfs,
}

/// A place for objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) service: Service,
    /// Scheme and host: `s3://bucket`, `hdfs://host:port`.
    pub(crate) base: String,
    /// Bucket, container, or host and port.
    pub(crate) host: String,
    /// Below that, without slashes at its ends; may be empty.
    pub(crate) prefix: String,
}

/// All schemes.
pub(crate) const SCHEMES: [(&str, Service); 7] = [
    ("s3", Service::S3),
    ("s3a", Service::S3),
    ("gs", Service::Gcs),
    ("az", Service::Azure),
    ("abfs", Service::Azure),
    ("abfss", Service::Azure),
    ("hdfs", Service::Hdfs),
];

impl Service {
    /// The feature of this crate that it needs.
    #[cfg(any(
        test,
        not(all(feature = "s3", feature = "gcs", feature = "azure", feature = "hdfs"))
    ))]
    pub(crate) fn feature(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gcs",
            Self::Azure => "azure",
            Self::Hdfs => "hdfs",
        }
    }
}

impl Address {
    pub(crate) fn parse(uri: &str) -> Result<Self> {
        let wrong = |what: &str| Error::new(ErrorKind::Invalid, format!("{uri:?}: {what}"));
        let (scheme, rest) = uri.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        let known = SCHEMES.iter().find(|(name, _)| *name == scheme);
        let Some(&(_, service)) = known else {
            let text = format!("{uri:?}: {scheme}:// is not known");
            return Err(Error::new(ErrorKind::Unsupported, text));
        };
        let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() {
            return Err(wrong(&format!("{scheme}:// is followed by {}", first_part(service))));
        }
        if host.contains(|c: char| c.is_control() || c.is_whitespace() || "?#\\".contains(c)) {
            return Err(wrong("its host has a character that hosts don't have"));
        }
        let prefix = prefix.trim_end_matches('/');
        if !prefix.is_empty() {
            check_path(prefix).map_err(|error| wrong("its path can't be one").because(error))?;
        }
        let base = format!("{scheme}://{host}");
        Ok(Self { service, base, host: host.to_owned(), prefix: prefix.to_owned() })
    }
}

fn first_part(service: Service) -> &'static str {
    match service {
        Service::S3 | Service::Gcs => "the name of a bucket",
        Service::Azure => "the name of a container",
        Service::Hdfs => "the name node, host:port",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(uri: &str, service: Service, base: &str, prefix: &str) {
        let address = Address::parse(uri).expect("a fine URI");
        assert_eq!(address.service, service);
        assert_eq!((address.base.as_str(), address.prefix.as_str()), (base, prefix));
        assert!(base.ends_with(&address.host), "{address:?}");
    }

    #[track_caller]
    fn refused(uri: &str, kind: ErrorKind) {
        let error = Address::parse(uri).expect_err("a wrong URI");
        assert_eq!(error.kind(), kind, "{uri}: {error}");
        assert!(error.to_string().contains(uri.escape_debug().to_string().as_str()), "{error}");
    }

    #[test]
    fn parts() {
        check("s3://b", Service::S3, "s3://b", "");
        check("s3://b/", Service::S3, "s3://b", "");
        check("s3a://b/a/c/", Service::S3, "s3a://b", "a/c");
        check("gs://b/ü x%20", Service::Gcs, "gs://b", "ü x%20");
        check(
            "abfss://c@a.dfs.core.windows.net/p",
            Service::Azure,
            "abfss://c@a.dfs.core.windows.net",
            "p",
        );
        check("hdfs://h:9000/a/b", Service::Hdfs, "hdfs://h:9000", "a/b");
    }

    #[test]
    fn refusals() {
        for wrong in
            ["s3:b", "s3://", "s3:///a", "s3://b//a", "s3://b/../a", "s3://b?x/a", "az://c\n"]
        {
            refused(wrong, ErrorKind::Invalid);
        }
        refused("ftp://h/a", ErrorKind::Unsupported);
    }

    #[test]
    fn each_service_has_a_feature() {
        let features: Vec<&str> = SCHEMES.iter().map(|(_, service)| service.feature()).collect();
        assert_eq!(features, ["s3", "s3", "gcs", "azure", "azure", "azure", "hdfs"]);
    }
}

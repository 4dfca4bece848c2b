//! Clients of the services, from the environment and the settings.

use std::sync::Arc;
use std::time::Duration;

use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use strandline_snapshot::{Error, ErrorKind, Result, Store};

use crate::address::Address;
use crate::cloud::CloudStore;
use crate::options::Options;

/// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`,
/// `AWS_ENDPOINT_URL` and their like; roles of machines and pods where there is no key.
#[cfg(feature = "s3")]
pub(crate) fn s3(address: &Address, options: Options) -> Result<Arc<dyn Store>> {
    use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};

    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&address.host)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        // One object at a time is deleted here, and not every service has the other call.
        .with_disable_bulk_delete(true)
        .with_client_options(client_options(options))
        .with_retry(retry(options));
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    if is_plain_http(endpoint) {
        builder = builder.with_allow_http(true);
    }
    store(builder.build(), address, options)
}

/// `GOOGLE_SERVICE_ACCOUNT`, `GOOGLE_APPLICATION_CREDENTIALS` and their like.
#[cfg(feature = "gcs")]
pub(crate) fn gcs(address: &Address, options: Options) -> Result<Arc<dyn Store>> {
    use object_store::gcp::GoogleCloudStorageBuilder;

    let builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(&address.host)
        .with_client_options(client_options(options))
        .with_retry(retry(options));
    store(builder.build(), address, options)
}

/// `AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT_KEY` and their like.
#[cfg(feature = "azure")]
pub(crate) fn azure(address: &Address, options: Options) -> Result<Arc<dyn Store>> {
    use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_url(&address.base)
        .with_client_options(client_options(options))
        .with_retry(retry(options));
    let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
    if is_plain_http(endpoint) {
        builder = builder.with_allow_http(true);
    }
    store(builder.build(), address, options)
}

fn store<S: ObjectStore>(
    built: object_store::Result<S>,
    address: &Address,
    options: Options,
) -> Result<Arc<dyn Store>> {
    let client = built.map_err(|error| {
        let text = format!("{} can't be used", address.base);
        Error::new(ErrorKind::Invalid, text).because(error)
    })?;
    let store = CloudStore::new(Arc::new(client), &address.base, &address.prefix, options)?;
    Ok(Arc::new(store))
}

fn client_options(options: Options) -> ClientOptions {
    ClientOptions::new()
        .with_timeout(options.request_timeout)
        .with_connect_timeout(options.request_timeout.min(Duration::from_secs(5)))
}

fn retry(options: Options) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { max_backoff: Duration::from_secs(2), ..BackoffConfig::default() },
        max_retries: usize::try_from(options.attempts.saturating_sub(1)).unwrap_or(usize::MAX),
        retry_timeout: options.total_timeout,
    }
}

#[cfg(any(feature = "s3", feature = "azure"))]
fn is_plain_http(endpoint: Option<String>) -> bool {
    endpoint.is_some_and(|url| url.starts_with("http://"))
}

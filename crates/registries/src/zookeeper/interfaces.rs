//! The layout of Dubbo 2: `<base>/<interface>/providers/<URL>`, where everything is in the name of the node.
//!
//! A provider is known by its address. An application may register several URLs with one address: one for each group and
//! version. They are one instance here, which is in service if one of them is.
//!
//! A URL of ours is out of service by its parameter `disabled`: with another one in place of its node. A URL of an
//! application cannot be replaced: the application would register it again. It is taken out of service by an override in
//! `<base>/<interface>/configurators`. Consumers apply it themselves; those of Dubbo 3 do not where there is a group or
//! version, but then the provider registers its URL again with the parameter, and is out of service from there on.

mod checks;
mod providers;

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};

use crate::error::RegistryError;
use crate::instance::{Instance, InstanceVersion, ServiceKey};
use crate::limits::{Exceeded, MAX_INSTANCE, MAX_METADATA};
use crate::registry::Change;

use super::calls::{CONCURRENCY, Calls};
use super::codes::Refusal;
use super::dubbo_url::{DubboUrl, encoded};
use super::packets::Request;
use super::path;
use checks::{WEIGHT, check};
use providers::{Provider, Urls, instance_of, is_last, is_ours, merged, version};

pub(super) use checks::check_weight;

/// The layout.
#[derive(Debug)]
pub(super) struct Interfaces {
    /// Without a slash at the end.
    pub(super) base: String,
    /// The protocol of the URLs that are registered.
    pub(super) protocol: String,
}

impl Interfaces {
    fn category(&self, service: &ServiceKey, category: &str) -> String {
        format!("{}/{}/{category}", self.base, encoded(&service.name))
    }

    pub(super) async fn instances(
        &self,
        calls: &Calls<'_>,
        service: &ServiceKey,
    ) -> Result<Vec<Instance>, RegistryError> {
        let providers = self.providers(calls, service, |_| true).await?;
        let overrides =
            if providers.is_empty() { Vec::new() } else { self.overrides(calls, service).await? };
        let mut addresses: BTreeMap<(&str, u16), Vec<&Provider>> = BTreeMap::new();
        for provider in &providers {
            let address = (provider.url.host.as_str(), provider.url.port);
            addresses.entry(address).or_default().push(provider);
        }
        Ok(addresses.values().filter_map(|at| merged(at, &overrides)).collect())
    }

    pub(super) async fn instance(
        &self,
        calls: &Calls<'_>,
        service: &ServiceKey,
        wanted: &Instance,
    ) -> Result<Option<Instance>, RegistryError> {
        let (providers, overrides) = self.present(calls, service, wanted).await?;
        Ok(merged(&providers.iter().collect::<Vec<_>>(), &overrides))
    }

    pub(super) async fn write(&self, calls: &Calls<'_>, change: &Change) -> Result<(), RegistryError> {
        let (service, instance) = change.target();
        path::check_name(&encoded(&service.name)).map_err(|reason| calls.rejected(reason))?;
        match change {
            Change::Register(..) => self.register(calls, service, instance).await,
            Change::SetInService(..) => self.set_in_service(calls, service, instance).await,
            Change::Deregister(..) => self.deregister(calls, service, instance).await,
        }
    }

    async fn register(
        &self,
        calls: &Calls<'_>,
        service: &ServiceKey,
        instance: &Instance,
    ) -> Result<(), RegistryError> {
        check(instance).map_err(|reason| calls.rejected(reason))?;
        let name = self.url(service, instance).encode();
        let folder = self.category(service, "providers");
        let (present, _) = self.present(calls, service, instance).await?;
        // The version shows that the other pod's instance was read, and is to be replaced.
        let is_replaced = instance.version.is_some();
        let is_ours_too = |present: &Instance| {
            present.owner() == instance.owner() || (is_replaced && instance.may_replace(present))
        };
        self.check_owner(calls, &present, is_ours_too)?;
        if present.iter().map(|provider| &provider.name).eq([&name]) {
            return Ok(());
        }
        check_version(calls, &present, instance.version)?;
        if present.is_empty() {
            if instance.version.is_some() {
                return Err(calls.conflict("somebody else has removed it"));
            }
            return match calls.create(&format!("{folder}/{name}"), Vec::new()).await? {
                Ok(()) | Err(Refusal::NodeExists) => Ok(()),
                Err(_) => Err(calls.conflict("somebody else removes the nodes above it")),
            };
        }
        let mut steps = deletions(&folder, present.iter().filter(|provider| provider.name != name));
        if present.iter().all(|provider| provider.name != name) {
            steps.insert(0, calls.creation(format!("{folder}/{name}"), Vec::new()));
        }
        transact(calls, steps).await
    }

    async fn set_in_service(
        &self,
        calls: &Calls<'_>,
        service: &ServiceKey,
        instance: &Instance,
    ) -> Result<(), RegistryError> {
        let (present, overrides) = self.present(calls, service, instance).await?;
        if present.is_empty() {
            return Err(calls.conflict("there is no such provider"));
        }
        let folder = self.category(service, "providers");
        let configurators = self.category(service, "configurators");
        let mut steps = Vec::new();
        let mut decided = BTreeSet::new();
        for provider in &present {
            if is_ours(provider) {
                let mut url = provider.url.clone();
                set_disabled(&mut url, !instance.in_service);
                if url != provider.url {
                    steps.push(calls.creation(format!("{folder}/{}", url.encode()), Vec::new()));
                    steps.extend(deletions(&folder, [provider]));
                }
                continue;
            }
            let wanted = DubboUrl::disabling(&provider.url, &service.name);
            if !decided.insert(wanted.to_string()) {
                continue;
            }
            let mut same = overrides.iter().filter(|(_, url)| *url == wanted).peekable();
            if instance.in_service {
                steps.extend(same.map(|(name, _)| deletion(&configurators, name)));
            } else if same.peek().is_none() {
                steps.push(calls.creation(format!("{configurators}/{}", wanted.encode()), Vec::new()));
            }
        }
        if steps.is_empty() {
            let by_others =
                |provider: &Provider| overrides.iter().any(|(_, url)| url.disables(&provider.url));
            if instance.in_service && present.iter().all(by_others) {
                return Err(calls.conflict("an override of somebody else keeps it out of service"));
            }
            // Its application may not have taken notice yet.
            return Ok(());
        }
        check_version(calls, &present, instance.version)?;
        if !instance.in_service {
            let all = self.urls(calls, service, "providers").await?;
            if present.iter().any(|provider| is_last(&provider.url, &all, &overrides)) {
                // Consumers would keep it (`RegistryDirectory.refreshInvoker`).
                return Err(calls.conflict(
                    "it is the last provider in service with its group and version, so consumers would not notice; try \
                     again when there is another one, or remove it",
                ));
            }
        }
        if steps
            .iter()
            .any(|step| matches!(step, Request::Create { path, .. } if path.starts_with(&configurators)))
        {
            calls.create_parents(&format!("{configurators}/-")).await?;
        }
        transact(calls, steps).await
    }

    async fn deregister(
        &self,
        calls: &Calls<'_>,
        service: &ServiceKey,
        instance: &Instance,
    ) -> Result<(), RegistryError> {
        let (present, _) = self.present(calls, service, instance).await?;
        if present.is_empty() {
            return Ok(());
        }
        self.check_owner(calls, &present, |present| present.owner() == instance.owner())?;
        check_version(calls, &present, instance.version)?;
        transact(calls, deletions(&self.category(service, "providers"), &present)).await
    }

    /// Returns an error if one of the nodes at the address is of somebody else, or of an application.
    fn check_owner(
        &self,
        calls: &Calls<'_>,
        present: &[Provider],
        is_ours_too: impl Fn(&Instance) -> bool,
    ) -> Result<(), RegistryError> {
        let of_others = |provider: &&Provider| {
            !(is_ours(provider) && instance_of(provider).is_some_and(|present| is_ours_too(&present)))
        };
        match present.iter().find(of_others) {
            Some(_) => Err(calls.conflict("somebody else has registered a provider there")),
            None => Ok(()),
        }
    }

    /// Returns the present providers at the address of an instance, and all overrides.
    async fn present(
        &self,
        calls: &Calls<'_>,
        service: &ServiceKey,
        instance: &Instance,
    ) -> Result<(Vec<Provider>, Urls), RegistryError> {
        let folder = self.category(service, "providers");
        calls.sync(&folder).await?;
        let is_at = |url: &DubboUrl| url.host == instance.host && url.port == instance.port;
        let providers = self.providers(calls, service, is_at).await?;
        let overrides =
            if providers.is_empty() { Vec::new() } else { self.overrides(calls, service).await? };
        Ok((providers, overrides))
    }

    async fn providers(
        &self,
        calls: &Calls<'_>,
        service: &ServiceKey,
        is_wanted: impl Fn(&DubboUrl) -> bool,
    ) -> Result<Vec<Provider>, RegistryError> {
        let folder = self.category(service, "providers");
        let folder = folder.as_str();
        let urls = self.urls(calls, service, "providers").await?.into_iter();
        let read = urls.filter(|(_, url)| url.port != 0 && is_wanted(url)).map(|(name, url)| async move {
            let stat = calls.stat(&format!("{folder}/{name}")).await?;
            Ok::<_, RegistryError>(stat.map(|stat| Provider { name, url, stat }))
        });
        let read: Vec<_> = read.collect();
        let found = stream::iter(read).buffered(CONCURRENCY);
        found.try_filter_map(async |found| Ok(found)).try_collect().await
    }

    async fn overrides(&self, calls: &Calls<'_>, service: &ServiceKey) -> Result<Urls, RegistryError> {
        self.urls(calls, service, "configurators").await
    }

    async fn urls(
        &self,
        calls: &Calls<'_>,
        service: &ServiceKey,
        category: &str,
    ) -> Result<Urls, RegistryError> {
        let names = calls.children(&self.category(service, category)).await?.unwrap_or_default();
        calls.wait_if_large().await?;
        let (mut urls, mut parameters) = (Vec::new(), 0);
        for name in names {
            if name.len() > MAX_INSTANCE {
                return Err(calls.exceeded(Exceeded::OneInstance));
            }
            let Some(url) = DubboUrl::decode(&name) else { continue };
            parameters += url.parameters.len();
            if parameters > MAX_METADATA {
                return Err(calls.exceeded(Exceeded::Metadata));
            }
            urls.push((name, url));
        }
        Ok(urls)
    }

    fn url(&self, service: &ServiceKey, instance: &Instance) -> DubboUrl {
        let mut url = DubboUrl {
            protocol: self.protocol.clone(),
            host: instance.host.clone(),
            port: instance.port,
            path: service.name.clone(),
            parameters: instance.metadata.clone(),
        };
        let weight = (instance.weight * WEIGHT).round();
        if weight != WEIGHT {
            url.parameters.insert("weight".to_owned(), format!("{weight:.0}"));
        }
        // A node that does not end with a session.
        url.parameters.insert("dynamic".to_owned(), "false".to_owned());
        set_disabled(&mut url, !instance.in_service);
        url
    }
}

fn set_disabled(url: &mut DubboUrl, disabled: bool) {
    if disabled {
        url.parameters.insert("disabled".to_owned(), "true".to_owned());
    } else {
        url.parameters.remove("disabled");
    }
}

fn check_version(
    calls: &Calls<'_>,
    present: &[Provider],
    read: Option<InstanceVersion>,
) -> Result<(), RegistryError> {
    match read {
        Some(read) if read != version(present) => {
            Err(calls.conflict("somebody else has registered or removed it"))
        }
        _ => Ok(()),
    }
}

fn deletions<'a>(folder: &str, providers: impl IntoIterator<Item = &'a Provider>) -> Vec<Request> {
    let delete = |provider: &Provider| Request::Delete {
        path: format!("{folder}/{}", provider.name),
        version: provider.stat.version,
    };
    providers.into_iter().map(delete).collect()
}

fn deletion(folder: &str, name: &str) -> Request {
    // Whatever its data is.
    Request::Delete { path: format!("{folder}/{name}"), version: -1 }
}

async fn transact(calls: &Calls<'_>, steps: Vec<Request>) -> Result<(), RegistryError> {
    match calls.write(Request::Multi(steps)).await? {
        Ok(()) => Ok(()),
        Err(_) => Err(calls.conflict("somebody else writes it at the same time")),
    }
}

#[cfg(test)]
mod tests;

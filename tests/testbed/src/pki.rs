//! The certificates of a cluster. All keys are EC P-256. The certificates do not expire, because a cluster lives for
//! minutes.

use std::{
    fs,
    net::IpAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use crate::{
    error::{During, TestClusterError},
    node_number::NodeNumber,
};

/// OID of the attribute `organizationName`, X.520.
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

/// The year in which expired certificates ended.
const LONG_AGO: i32 = 2001;

/// A certificate and its private key, as PEM.
#[derive(Clone, Debug)]
pub struct CertificatePem {
    /// The certificate.
    pub cert: String,
    /// The private key, PKCS #8.
    pub key: String,
}

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: CertificatePem,
}

impl Authority {
    /// Creates a new authority.
    pub(crate) fn new(name: &str) -> Result<Self, TestClusterError> {
        let make = || {
            let key = KeyPair::generate()?;
            let params = authority_params(name);
            let pem = CertificatePem { cert: params.self_signed(&key)?.pem(), key: key.serialize_pem() };
            Ok(Self { issuer: Issuer::new(params, key), pem })
        };
        make().map_err(|source| TestClusterError::Certificate { of: name.to_owned(), source })
    }

    /// Loads an authority that [`store`] wrote under this name.
    pub(crate) fn load(dir: &Path, name: &str) -> Result<Self, TestClusterError> {
        let read = |extension: &str| {
            let path = dir.join(format!("{name}.{extension}"));
            fs::read_to_string(&path).during(|| format!("read {}", path.display()))
        };
        let pem = CertificatePem { cert: read("crt")?, key: read("key")? };
        let key = KeyPair::from_pem(&pem.key);
        let key = key.map_err(|source| TestClusterError::Certificate { of: name.to_owned(), source })?;
        Ok(Self { issuer: Issuer::new(authority_params(name), key), pem })
    }

    /// Returns the authority's own certificate, as PEM.
    pub(crate) fn cert_pem(&self) -> &str {
        &self.pem.cert
    }

    /// Returns a certificate for servers at `names` (DNS names and addresses). It is also valid for clients.
    pub(crate) fn server(
        &self,
        common_name: &str,
        names: &[&str],
    ) -> Result<CertificatePem, TestClusterError> {
        self.issue(common_name, &[], names, None)
    }

    /// Returns a certificate for a client. Kubernetes takes the common name as the user and the organizations as
    /// groups.
    pub(crate) fn client(&self, user: &str, groups: &[&str]) -> Result<CertificatePem, TestClusterError> {
        self.issue(user, groups, &[], None)
    }

    /// Returns a certificate for a client that has expired.
    pub(crate) fn expired_client(
        &self,
        user: &str,
        groups: &[&str],
    ) -> Result<CertificatePem, TestClusterError> {
        self.issue(user, groups, &[], Some(LONG_AGO))
    }

    fn issue(
        &self,
        common_name: &str,
        groups: &[&str],
        names: &[&str],
        until_year: Option<i32>,
    ) -> Result<CertificatePem, TestClusterError> {
        // rcgen keeps one value per attribute type. The same OID in its custom form adds a second one.
        if groups.len() > 2 {
            let message = format!(
                "a client certificate of a cluster holds at most 2 groups, {common_name} has {groups:?}"
            );
            return Err(TestClusterError::Unsupported(message));
        }
        let issue = || {
            let mut params =
                CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())?;
            params.distinguished_name = DistinguishedName::new();
            let kinds = [DnType::OrganizationName, DnType::CustomDnType(ORGANIZATION.to_vec())];
            for (kind, group) in kinds.into_iter().zip(groups) {
                params.distinguished_name.push(kind, *group);
            }
            params.distinguished_name.push(DnType::CommonName, common_name);
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
            params.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            params.use_authority_key_identifier_extension = true;
            if let Some(year) = until_year {
                params.not_after = rcgen::date_time_ymd(year, 1, 1);
            }
            let key = KeyPair::generate()?;
            Ok(CertificatePem { cert: params.signed_by(&key, &self.issuer)?.pem(), key: key.serialize_pem() })
        };
        issue().map_err(|source| TestClusterError::Certificate { of: common_name.to_owned(), source })
    }
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params
}

/// The names of the files in the PKI's folder, without extension.
pub(crate) mod name {
    pub(crate) const CA: &str = "ca";
    pub(crate) const FRONT_PROXY_CA: &str = "front-proxy-ca";
    pub(crate) const FRONT_PROXY_CLIENT: &str = "front-proxy-client";
    pub(crate) const API_SERVER: &str = "apiserver";
    pub(crate) const KUBELET_CLIENT: &str = "kubelet-client";
    pub(crate) const ADMIN: &str = "admin";
    pub(crate) const CONTROLLER_MANAGER: &str = "kcm";
    pub(crate) const SCHEDULER: &str = "scheduler";
    pub(crate) const PROXY: &str = "proxy";
    pub(crate) const KWOK: &str = "kwok";
    pub(crate) const SERVICE_ACCOUNTS: &str = "sa";
}

/// Creates all certificates of the components of a cluster with `nodes` nodes in `dir`, and returns the authority that
/// signed them. `api_ips` are the addresses of the API servers.
pub(crate) fn create(
    dir: &Path,
    api_ips: &[IpAddr],
    service_ip: IpAddr,
    nodes: usize,
) -> Result<Authority, TestClusterError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.during(|| format!("make {}", dir.display()))?;
    let service_ip = service_ip.to_string();
    let api_ips: Vec<String> = api_ips.iter().map(IpAddr::to_string).collect();
    let api_ips: Vec<&str> = api_ips.iter().map(String::as_str).collect();
    let ca = Authority::new(name::CA)?;
    let front = Authority::new(name::FRONT_PROXY_CA)?;
    store(dir, name::CA, &ca.pem)?;
    store(dir, name::FRONT_PROXY_CA, &front.pem)?;
    let kubernetes = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let api_names = [&["localhost", "127.0.0.1", &service_ip][..], &api_ips, &kubernetes[..]].concat();
    store(dir, name::API_SERVER, &ca.server("kube-apiserver", &api_names)?)?;
    let masters = ["system:masters"];
    // kwok writes for many kubelets. The second group is that of kubelets, by which admission recognises their writes.
    let kubelets = ["system:masters", "system:nodes"];
    for (file, user, groups) in [
        (name::ADMIN, "admin", &masters[..]),
        (name::KUBELET_CLIENT, "kube-apiserver-kubelet-client", &masters[..]),
        (name::KWOK, "kwok", &kubelets[..]),
        (name::PROXY, "system:kube-proxy", &[]),
    ] {
        store(dir, file, &ca.client(user, groups)?)?;
    }
    // These servers also listen on loopback.
    let own = ["localhost", "127.0.0.1"];
    store(dir, name::CONTROLLER_MANAGER, &ca.server("system:kube-controller-manager", &own)?)?;
    store(dir, name::SCHEDULER, &ca.server("system:kube-scheduler", &own)?)?;
    for node in NodeNumber::all(nodes) {
        let (name, ip) = (node.name(), node.ip().to_string());
        let (user, names) = (format!("system:node:{name}"), [&name, "localhost", "127.0.0.1", &ip]);
        store(dir, &name, &ca.issue(&user, &["system:nodes"], &names, None)?)?;
    }
    store(dir, name::FRONT_PROXY_CLIENT, &front.client("front-proxy-client", &[])?)?;
    let tokens = KeyPair::generate();
    let tokens = tokens
        .map_err(|source| TestClusterError::Certificate { of: "service accounts".to_owned(), source })?;
    write_private(&dir.join(format!("{}.key", name::SERVICE_ACCOUNTS)), &tokens.serialize_pem())?;
    write_private(&dir.join(format!("{}.pub", name::SERVICE_ACCOUNTS)), &tokens.public_key_pem())?;
    Ok(ca)
}

/// Writes `NAME.crt` and `NAME.key`.
pub(crate) fn store(
    dir: &Path,
    name: &str,
    pem: &CertificatePem,
) -> Result<(PathBuf, PathBuf), TestClusterError> {
    let (cert, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
    write_private(&cert, &pem.cert)?;
    write_private(&key, &pem.key)?;
    Ok((cert, key))
}

fn write_private(path: &Path, text: &str) -> Result<(), TestClusterError> {
    use std::io::Write;
    let file = fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).during(|| format!("write {}", path.display()))
}

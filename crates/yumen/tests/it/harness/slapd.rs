//! OpenLDAP as a process, with the users of one company.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use super::certs::Pair;
use super::{Scratch, eventually, free_port, run};

/// The entries. Alice has a manager of the same `uid` in another branch, Comma a comma in its name.
const ENTRIES: &str = "\
dn: dc=shop,dc=test
objectClass: dcObject
objectClass: organization
o: shop
dc: shop

dn: ou=users,dc=shop,dc=test
objectClass: organizationalUnit
ou: users

dn: ou=staff,dc=shop,dc=test
objectClass: organizationalUnit
ou: staff

dn: cn=alice,ou=users,dc=shop,dc=test
objectClass: inetOrgPerson
cn: alice
sn: alice
uid: a1
userPassword: wonder:land

dn: cn=bob,ou=users,dc=shop,dc=test
objectClass: inetOrgPerson
cn: bob
sn: bob
uid: twin
userPassword: builder

dn: cn=Comma\\, Inc,ou=users,dc=shop,dc=test
objectClass: inetOrgPerson
cn: Comma, Inc
sn: comma
uid: c*(a)
userPassword: comma

dn: cn=carol,ou=staff,dc=shop,dc=test
objectClass: inetOrgPerson
cn: carol
sn: carol
uid: twin
userPassword: builder

dn: cn=reader,dc=shop,dc=test
objectClass: inetOrgPerson
cn: reader
sn: reader
userPassword: reads
";

/// A directory; ends with the test. Plain LDAP and StartTLS on `plain`, LDAPS on `secure`.
pub(crate) struct Slapd {
    pub(crate) plain: SocketAddr,
    pub(crate) secure: SocketAddr,
    config: String,
    /// Directory of the server, removed with it.
    _scratch: Scratch,
    child: Child,
}

impl Slapd {
    /// Starts a directory with this certificate. Anonymous clients may search names, but read no passwords.
    pub(crate) fn start(pair: &Pair) -> Slapd {
        let scratch = Scratch::new();
        let (cert, key) = (scratch.write("cert.pem", &pair.cert), scratch.write("key.pem", &pair.key));
        let data = scratch.file("data");
        std::fs::create_dir_all(&data).expect("a directory for the database");
        let config = format!(
            "include /etc/ldap/schema/core.schema\ninclude /etc/ldap/schema/cosine.schema\n\
             include /etc/ldap/schema/inetorgperson.schema\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\n\
             pidfile {pid}\nTLSCertificateFile {cert}\nTLSCertificateKeyFile {key}\n\
             database mdb\nmaxsize 10485760\nsuffix dc=shop,dc=test\ndirectory {data}\n\
             access to attrs=userPassword by anonymous auth\naccess to * by * read\n",
            pid = scratch.file("slapd.pid").display(),
            data = data.display(),
        );
        let config = scratch.write("slapd.conf", config);
        let entries = scratch.write("entries.ldif", ENTRIES);
        let (status, out, errors) = run("slapadd", &["-f", &config, "-l", &entries]);
        assert_eq!(status, 0, "slapadd (scripts/deps.sh test): {out}{errors}");
        let (plain, secure) = (free_port(), free_port());
        let child = serve(&config, plain, secure);
        let slapd = Slapd { plain, secure, config, _scratch: scratch, child };
        slapd.wait_until_up();
        slapd
    }

    fn wait_until_up(&self) {
        eventually("slapd listens", 20, || TcpStream::connect(self.secure).is_ok());
    }

    /// Ends the server without a farewell to its clients.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again on the same ports.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = serve(&self.config, self.plain, self.secure);
        self.wait_until_up();
    }
}

impl Drop for Slapd {
    fn drop(&mut self) {
        self.kill();
    }
}

fn serve(config: &str, plain: SocketAddr, secure: SocketAddr) -> Child {
    let addresses = format!("ldap://{plain} ldaps://{secure}");
    Command::new("slapd")
        // A debug level of 0 keeps the process in the foreground.
        .args(["-d", "0", "-f", config, "-h", &addresses])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("slapd does not start ({error}): scripts/deps.sh test"))
}

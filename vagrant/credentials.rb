require "base64"
require "fileutils"
require "json"
require "openssl"
require "securerandom"

# Keys and tokens of a cluster, made on this computer and kept beside Vagrant's own keys. Each machine is given what it
# needs: control nodes the authorities and the tokens, all others only what reads. So no machine has to ask another for
# anything, and a user who can start the machines is their administrator.
#
# Kubeconfigs are written as JSON, which is YAML too.
class Credentials
  DAYS = 3650

  # The credentials in `directory`, made when they are not there, for the server at `url`.
  def self.of_own_cluster(directory, url)
    marker = File.join(directory, "server")
    return new(directory) if File.exist?(marker) && File.read(marker) == url && File.exist?("#{directory}/control/etcd-ca.crt")

    FileUtils.rm_rf(directory)
    key, certificate = authority
    admin, agent = Array.new(2) { SecureRandom.urlsafe_base64(32) }
    agents = kubeconfig(url, certificate, "agent", agent)
    write(directory, "admin.kubeconfig", kubeconfig(url, certificate, "admin", admin))
    write(directory, "worker/kubeconfig", agents)
    write(directory, "control/kubeconfig", agents)
    write(directory, "control/ca.crt", certificate.to_pem)
    write(directory, "control/ca.key", key.to_pem)
    write(directory, "control/tokens.csv",
          %(#{admin},admin,admin,"system:masters"\n#{agent},agent,agent,"nodeagent:agents"\n))
    # Members of etcd, where there are several, know each other by another authority than clients of the API.
    key, certificate = authority
    write(directory, "control/etcd-ca.crt", certificate.to_pem)
    write(directory, "control/etcd-ca.key", key.to_pem)
    write(directory, "server", url)
    new(directory)
  end

  # A copy of the kubeconfig of a cluster that is there already.
  def self.of_existing_cluster(directory, source)
    abort "nodeagent: NODEAGENT_KUBECONFIG names #{source}, which is not there" unless File.file?(source)
    text = File.read(source)
    if text =~ %r{server["']?:\s*["']?https?://(127\.|localhost|\[::1\])}
      abort "nodeagent: #{source} names a server on loopback, which the machines cannot reach: put its address there"
    end
    FileUtils.rm_rf(directory)
    write(directory, "worker/kubeconfig", text)
    new(directory)
  end

  def initialize(directory)
    @directory = directory
  end

  # The files that a machine is given.
  def for(machine)
    Dir[File.join(@directory, machine.start_with?("control") ? "control" : "worker", "*")]
  end

  def self.authority
    key = OpenSSL::PKey::EC.generate("prime256v1")
    certificate = OpenSSL::X509::Certificate.new
    certificate.version = 2
    certificate.serial = SecureRandom.random_number(1 << 64)
    certificate.subject = certificate.issuer = OpenSSL::X509::Name.new([["CN", "nodeagent-vagrant-ca"]])
    # Clocks of machines that were asleep are behind.
    certificate.not_before = Time.now - 86_400
    certificate.not_after = Time.now + DAYS * 86_400
    certificate.public_key = key
    extensions = OpenSSL::X509::ExtensionFactory.new(certificate, certificate)
    certificate.add_extension(extensions.create_extension("basicConstraints", "CA:TRUE", true))
    certificate.add_extension(extensions.create_extension("keyUsage", "keyCertSign,cRLSign", true))
    certificate.add_extension(extensions.create_extension("subjectKeyIdentifier", "hash"))
    [key, certificate.sign(key, OpenSSL::Digest.new("SHA256"))]
  end

  def self.kubeconfig(url, certificate, user, token)
    JSON.pretty_generate(
      "apiVersion" => "v1", "kind" => "Config", "current-context" => "nodeagent",
      "clusters" => [{ "name" => "nodeagent", "cluster" => {
        "server" => url, "certificate-authority-data" => Base64.strict_encode64(certificate.to_pem)
      } }],
      "users" => [{ "name" => user, "user" => { "token" => token } }],
      "contexts" => [{ "name" => "nodeagent", "context" => { "cluster" => "nodeagent", "user" => user } }]
    )
  end

  def self.write(directory, name, text)
    path = File.join(directory, name)
    FileUtils.mkdir_p(File.dirname(path), mode: 0o700)
    File.open(path, "w", 0o600) { |file| file.write(text) }
  end

  private_class_method :authority, :kubeconfig, :write
end

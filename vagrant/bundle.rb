require "rubygems/package"

# Everything a machine is given, as one tar archive: one file is much sooner there than many.
module Bundle
  # Write the archive at `path`; `files` names paths on this computer by those in the archive.
  def self.write(path, files)
    File.open(path, "wb", 0o600) do |file|
      Gem::Package::TarWriter.new(file) do |archive|
        files.each do |name, source|
          archive.add_file_simple(name, 0o600, File.size(source)) { |entry| entry.write(File.binread(source)) }
        end
      end
    end
    path
  end
end
